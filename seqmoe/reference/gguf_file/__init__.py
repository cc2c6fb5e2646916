"""A checkpoint as one GGUF file: tensors, hyperparameters and vocabulary under llama.cpp's names."""
