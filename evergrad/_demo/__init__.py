"""`evergrad demo`: estimators side by side on one task, under one clock."""
