"""Knowledge distillation from a teacher: its layers and its predictions (MobileBERT §3.5, §3.6)."""
