"""Services in which granian reads the requests: what one suite shows of gunicorn it then shows of granian.

Clients say the path as nginx would. Services behind others, and those that a test changes in its own process, have
gunicorn.
"""

from __future__ import annotations

_ASCII = "granian hands on a header that is empty or not ASCII as an empty one: 400, see tests/http/test_granian.py"
_CHUNKED = "granian does not tell the end of a chunked body: 411, see tests/http/test_granian.py"
_WITHOUT_NGINX = "its examples call without nginx"
_OWN_PROCESS = "it changes the service in its own process"
_EARLY = "granian may break the connection before it has sent what precedes an error: test_granian.py"

IMPOSSIBLE = {
    "test_access_tokens.py::test_no_log_has_a_token": "granian has no log of accesses",
    "test_audit.py::test_odd_names_make_one_line_each": _ASCII,
    "test_bad_input.py::test_a_body_over_the_limit": _CHUNKED,
    "test_bad_input.py::test_a_client_that_hangs_up": _CHUNKED,
    "test_bad_input.py::test_chunked_bodies": _CHUNKED,
    "test_documents.py::test_headers_of_get": _ASCII,
    "test_encryption.py::test_a_changed_file": _EARLY,
    "test_encryption.py::test_a_holder_is_told_by_its_path": _ASCII,
    "test_encryption.py::test_an_attachment_is_decrypted_only": _ASCII,
    "test_encryption.py::test_without_a_key_what_is_marked": _ASCII,
    "test_export_elsewhere.py::test_an_import_of_an_export": "a real service notes uses of keys in its tree",
    "test_flat_views.py::test_nothing_is_made_unless_it_is_asked_for": _ASCII,
    "test_provider_contract.py::test_names_are_read_and_written_in_latin_1": _ASCII,
    "test_paths.py::test_an_index_that_was_built_by_other_paths": _OWN_PROCESS,
    "test_permissions.py::test_an_owner_with_any_name": _ASCII,
    "test_releases.py::test_a_user_with_any_name": _ASCII,
    "test_releases.py::test_names_of_users_are_kept_whole": _ASCII,
    "test_granian.py": "it starts services with granian itself",
    "test_history_diffs.py::test_what_is_too_large_is_not_compared": _OWN_PROCESS,
    "test_leases.py::test_a_timeout_that_is_none_is_refused[": _ASCII,
    "test_nginx.py::test_without_nginx_slow_clients": "granian may read a later request first",
    "test_orbeon_guide.py::test_the_check_works_literally": _WITHOUT_NGINX,
    "test_permissions.py::test_the_credentials_header_brings_roles": _ASCII,
    "test_permissions.py::test_two_users_never_become_one": _ASCII,
    "test_reporting.py::test_the_publication_works_literally": _WITHOUT_NGINX,
    "test_standstill.py::test_responses_that_nobody": "granian ends such a connection without a line in the log",
    "test_standstill.py::test_an_upload_that_stops": "nginx, which is in front of granian, limits uploads",
    "test_bad_input.py::test_the_body_of_what_is_refused": "granian asks for bodies itself",
    "test_large_xml.py::test_data_and_definitions": _CHUNKED,
    "test_large_xml.py::test_few_large_documents": _OWN_PROCESS,
    "test_stored_contents.py::test_pages_with_an_address": "granian serves on one address",
    "test_transfers.py::test_an_upload_does_not_grow_the_worker[chunked]": _CHUNKED,
    "test_transfers.py::test_downloads_go_out_by_sendfile": "granian copies",
}
"""Tests that cannot succeed with granian, by the beginning of their name, and why: they are skipped."""
