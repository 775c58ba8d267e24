"""Bayesian neural networks that prune themselves (paper, section 4.4 and supplement A.4).

| to change | look in |
| --- | --- |
| a parameter: its default, description, or what is allowed | settings.py |
| a loss, a prediction, a calibration | regressor.py, classifier.py, likelihoods.py |
| what `fit` does, step by step | base.py |
| what data are accepted; scales, held-out rows, chunks | intake.py, feeding.py |
| defaults that depend on the data: epochs, learning rate, warm-up | plan.py |
| the stages of a path, the choice of a confidence | path.py, choosing.py (the second look) |
| the temperature, and warnings that little was learnt | held_out.py |
| kinds of layers, sizes and costs | structure.py |
| priors, posterior, KL terms, the one forward pass | layers.py |
| the compiled step and its optimiser | program.py |
| the loop around it; several networks in one program | training.py, together.py |
| which units go | removal.py |
| what a training needs to go on | state.py |
| posterior draws in NumPy | prediction.py |
| methods of a fitted network | fitted.py, plots.py |
| ensembles and the weights of their networks | ensemble.py, mixtures.py |
| files, checkpoints, ONNX, progress | files.py, storage.py, export.py, progress.py |
"""
