"""Knowledge transfer from a teacher, layer by layer and prediction by prediction (MobileBERT §3.5, §3.6)."""
