"""Scale priors: q(tau^2), q(nu^2), and which columns share a tau."""
