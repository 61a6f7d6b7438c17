"""Results for people: tables on the screen and plots on paper."""
