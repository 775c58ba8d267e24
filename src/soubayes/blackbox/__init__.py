"""The black-box engine: a confidence for every block of any NumPyro model.

| to change | look in |
| --- | --- |
| which block a site of a model or guide belongs to | blocks.py, modules.py, grouping.py |
| the built-in guides; the spline of the flow | guides.py, flows.py |
| the objective: J and its gradient | elbo.py, divergences.py, losses.py |
| what is compiled, and for how long it is kept | program.py, compiling.py |
| where a fit starts | start.py, frame.py |
| how J is minimised | descent.py, polish.py, progress.py |
| `fit`, step by step; feedback between modules | variational.py, stages.py, arguments.py |
| one training for all confidences, and what predicts best | family.py, mixture.py |
| nested sampling of the exact posterior | nested.py, levels.py, outer.py |
| whether a fit can be trusted | verdict.py, diagnostics.py, nuts.py |
| flat priors | flat.py |
| what is returned | posterior.py |
"""
