"""
A narrow prior or a low confidence?
===================================

Two ways to change how a prior acts on one normal mean: its width, and the confidence in it.
"""

import matplotlib.pyplot as plt
import numpy as np

from soubayes import conjugate_update, plot_prior_vs_confidence

y = np.array([1.6, 2.3, 1.9, 2.7, 1.5])
print(f"Five observations with mean {y.mean():.2f} and known sd 1.5; prior mu ~ N(0, sigma_0^2).\n")
print("sigma_0  confidence  posterior mean     sd  weight of the prior")
for prior_sd, confidence in [(1.0, 1.0), (0.25, 1.0), (1.0, 0.1), (1.0, 5.0)]:
    update = conjugate_update(
        "normal", y, confidence=confidence, mean=0.0, sd=prior_sd, noise_sd=1.5
    )
    mean, sd = update.posterior.mean(), update.posterior.std()
    print(f"{prior_sd:7g}  {confidence:10g}  {mean:14.3f}  {sd:5.3f}  {update.prior_weight:19.2f}")

# %%
# A narrow prior and a low confidence both narrow the posterior: the prior around its own mean, the
# confidence around the data. No width of the prior does what a low confidence does.

plot_prior_vs_confidence(y)
plt.show()
