"""Deployment: models as files for other runtimes, smaller and faster, verified before they are written."""
