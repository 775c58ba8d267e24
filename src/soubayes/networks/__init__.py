"""Bayesian neural networks that prune themselves (paper, section 4.4 and supplement A.4).

| file | idea |
| --- | --- |
| structure.py | the layers before training, convolutions included, and the cost of a size |
| layers.py | the model: priors, variational family, the forward pass, KL terms |
| likelihoods.py | Gaussian noise with unknown precision, categorical outputs |
| state.py | numbers of the objective, stages, what a checkpoint holds |
| program.py | the compiled part: minibatches in a scan, the objective, Adam |
| training.py | the loop around it: history, stages, removal; several networks together |
| path.py | the stages of a path of confidences, its table, the choice of a network |
| learning.py | what held-out rows say: temperature, and whether anything was learnt |
| compaction.py | which units and inputs are dead, and cutting them out of a training state |
| feeding.py | arrays, memory maps and iterables of batches as chunks; scaling; devices |
| storage.py | safetensors + JSON: save, load, checkpoints |
| prediction.py | posterior draws of the network's function |
| settings.py | checks of what the user set |
| intake.py | what `fit` is given: checks, rows held out, scales |
| base.py, estimators.py | fitting and files; the two scikit-learn estimators |
| ensemble.py, mixtures.py | networks of several confidences on folds, averaged; stacking |
| export.py, plots.py, progress.py | ONNX, figures, the progress bar and checkpoints |
"""
