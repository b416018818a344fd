"""The pages for administrators below ``/admin/``: rendered here, without scripts, for one session each."""
