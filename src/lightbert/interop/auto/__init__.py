"""Our models as transformers models. Only `interop.hook` imports this package."""
