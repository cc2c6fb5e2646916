"""Training of the predictors that are networks: teacher forcing until it converges, then scheduled sampling."""

from seqmoe.predictor.training.loop import train_predictor
from seqmoe.predictor.training.options import Progress, TrainingOptions

__all__ = ["Progress", "TrainingOptions", "train_predictor"]
