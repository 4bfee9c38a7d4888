"""What the dashboard shows, and its pages."""
