"""From evidence to a decision: gates, the serving policy, and the report that shows both."""
