"""The stories: what each verb does, from top to bottom, on one screen each."""
