"""Stream learners shown on data: progressive validation against what people use today."""
