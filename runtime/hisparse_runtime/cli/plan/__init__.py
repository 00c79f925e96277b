"""`hisparse plan`: what to plan (flags, a file), the plan, and how it is shown."""
