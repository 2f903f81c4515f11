"""Serve a model over HTTP: a JSON API and a page for the browser."""
