"""The workers of jobs that are compared; run by support/jobs.py."""
