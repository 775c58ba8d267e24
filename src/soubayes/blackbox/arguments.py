"""Parameters that the functions of models and draws share, described once."""

ARGUMENTS = """
model : callable
    A NumPyro model. It is called as ``model(*args, **kwargs)``.
*args : object
    Positional arguments of the model.
**kwargs : object
    Keyword arguments of the model.
confidence : mapping of str to float, optional
    The confidence of each block, by name. A block that is not named has confidence 1. ``inf``
    keeps a block at its prior; 0 makes it a point estimate without a prior.
groups : mapping of str to iterable of str, optional
    Sites that form one block under a common name.
modules : mapping of str to iterable of str, optional
    The observed sites of each block, for ``eta`` and ``weight``. By default an observed site
    belongs to the last block that it depends on.
eta : mapping of str to float, optional
    The feedback of each block, between 0 and 1: how much the earlier blocks learn from the data
    of its module and of the later ones. 0 cuts it; a block that is not named has 1.
feedback : {"power", "smi"}, default="power"
    What a feedback between 0 and 1 means, as in :func:`solve_exact`.
weight : mapping of str to float, optional
    The weight of the data of each block, 1 by default.
steps : int or "auto", default="auto"
    Largest number of steps; ``"auto"`` means 20,000.
order : sequence of str, optional
    The blocks of draws that come without a model, outermost first. Variables have no order of
    their own, and the order is part of the model. It is checked with the draws.
random_state : int or jax.Array, default=0
    The seed.
name : str
    The quantity.
n : int
    The number of draws.
p : float or array-like
    Probabilities between 0 and 1.
rng_key : jax.Array
    The key of the draws.
param_map : dict of str to array
    Parameters of model and guide.
guide : callable
    The NumPyro guide.
"""

#: The same for draws: the model is optional.
DRAWS_ARGUMENTS = (
    ARGUMENTS
    + """
draws : draws of any library
    Draws at confidence 1: an ArviZ object, a NumPyro ``MCMC`` object or a mapping of names to
    arrays, CmdStan's CSV files (paths, one for each chain), chains or a JSON file as posteriordb
    has them, a pandas DataFrame, or a dictionary of the groups ``posterior``, ``log_prior`` and
    ``log_likelihood``.
model : PyMC, Bambi or NumPyro model, or Stan program, optional
    What knows the priors. The log priors and the likelihood are computed from a model of PyMC,
    Bambi or NumPyro (whose arguments follow it). A Stan program (its text, or its ``Path``) gives
    the order of its parameters; its draws need ``lp_x`` for each parameter x and ``log_lik``, which
    :func:`stan_log_priors` writes. Without a model give draws with ``log_prior`` and
    ``log_likelihood``, and ``order``.
"""
)

#: For families: a range in the place of a number.
RANGES = """
confidence : mapping of str to float or pair of float
    For each block a range ``(low, high)`` with 0 < low < high, or one number. A block that is
    not named has confidence 1.
"""
