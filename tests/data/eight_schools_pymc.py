"""Makes eight_schools_pymc.nc: draws of PyMC 5.28 with log_prior and log_likelihood."""

from pathlib import Path

import numpy as np

EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def main() -> None:
    """Needs PyMC, which the tests do not."""
    import pymc as pm
    import xarray as xr

    with pm.Model():
        tau = pm.HalfNormal("tau", 10.0)
        mu = pm.Normal("mu", 0.0, 20.0)
        z = pm.Normal("z", 0.0, 1.0, shape=8)
        pm.Normal("effect", mu + tau * z, ERROR, observed=EFFECT)
        data = pm.sample(
            2000, tune=2000, chains=4, cores=1, random_seed=1, target_accept=0.95, progressbar=False
        )
        data = data.sel(draw=slice(None, None, 10))
        pm.compute_log_prior(data, progressbar=False)
        pm.compute_log_likelihood(data, progressbar=False)

    groups = {
        name: data[name].astype("float32") for name in ("posterior", "log_prior", "log_likelihood")
    }
    groups["sample_stats"] = data["sample_stats"][["diverging"]].astype("int8")
    packed = {f"/{g}": {n: {"zlib": True} for n in x.data_vars} for g, x in groups.items()}
    tree = xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    tree.to_netcdf(
        Path(__file__).with_suffix(".nc"), engine="h5netcdf", encoding=packed, format="NETCDF4"
    )


if __name__ == "__main__":
    main()
