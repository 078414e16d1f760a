"""Text models: facts from the files beside them, and the trial of tokenizers on hostile texts."""
