"""What a response is: a loss of its linear predictors, and what is predicted from them.

| to change | look in |
| --- | --- |
| what a solver asks of a likelihood, and what it may leave out | `base` |
| one kind of response | the file of its name |
| the nuisance parameter of gamma and negative binomial responses | `lognormal` |
| offsets, exposures, and where the prior of the intercept lies | `shifted` |
| means, quantiles and densities of a mixture | `predictive` |
| how a likelihood of a user is checked before a fit | `checking` |
"""
