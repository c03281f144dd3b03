"""Where requests and answers are charged, each kind by its own law; a gate says whether one may go now."""
