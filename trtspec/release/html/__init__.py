"""The report as one HTML page: what it says (acceptance, speed, evidence), its charts, and its template."""
