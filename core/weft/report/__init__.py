"""What a program did and what it looks like: profiles and reports."""
