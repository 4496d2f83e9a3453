"""Options, each declared once, and what carries them: groups, keywords, settings, old names."""
