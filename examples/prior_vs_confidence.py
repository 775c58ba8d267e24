"""Prior informativeness against confidence: two ways to regularise one normal mean."""

import numpy as np

import soubayes

y = np.array([1.6, 2.3, 1.9, 2.7, 1.5])
print(f"Five observations with mean {y.mean():.2f} and known sd 1.5; prior mu ~ N(0, sigma_0^2).\n")
print("sigma_0  confidence  posterior mean     sd  weight of the prior")
for prior_sd, confidence in [(1.0, 1.0), (0.25, 1.0), (1.0, 0.1), (1.0, 5.0)]:
    update = soubayes.conjugate_update(
        "normal", y, confidence=confidence, mean=0.0, sd=prior_sd, noise_sd=1.5
    )
    mean, sd = update.posterior.mean(), update.posterior.std()
    print(f"{prior_sd:7g}  {confidence:10g}  {mean:14.3f}  {sd:5.3f}  {update.prior_weight:19.2f}")
print(
    "\nA tight prior and a low confidence both narrow the posterior: the first around the prior's"
)
print("mean, the second around the data.")

figure = soubayes.plot_prior_vs_confidence(y)
figure.savefig("prior_vs_confidence.png", dpi=150)
print("\nwrote prior_vs_confidence.png")
