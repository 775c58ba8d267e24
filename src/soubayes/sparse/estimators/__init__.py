"""The scikit-learn estimators, a file each."""
