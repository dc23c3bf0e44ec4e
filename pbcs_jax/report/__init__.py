"""What a run leaves for people: tables, figures, report.html, and files written whole."""
