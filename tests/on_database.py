"""Services over a database in the place of each data directory: what one suite shows of trees it then shows of it.

A directory's place is taken by a schema of its own, the same each time, so that a service may be started again.
"""

import hashlib
from pathlib import Path

from tests.postgresql.server import Server, prepared

_STORED = "it looks at what is stored, in files"
_DAMAGE = "it damages a file"
_BY_HAND = "it edits a file by hand"
_FLAT = "it looks at the views in SQLite: tests/postgresql/test_reports.py has those of a database"
_INDEX = "it is about the index of a tree, and who notes what"
_LINES = "the lines name the data directory"
_ELSEWHERE = "a database keeps the attachments of its data itself, or has them in S3"

FILES_ONLY = {
    "test_audit.py::test_a_service_does_not_start_with_an_audit_that_it_cannot_write": "it needs a directory",
    "test_documents.py::test_a_file_replaced_by_hand": _BY_HAND,
    "test_documents.py::test_every_file_of_real_input": _STORED,
    "test_datasources.py": "several trees: tests/postgresql/test_http.py has a database beside a tree",
    "test_definitions.py::test_replaced_and_deleted_definitions_stay_in_the_history": _STORED,
    "test_encryption.py::test_a_changed_file": _DAMAGE,
    "test_encryption.py::test_a_form_that_marks_nothing_keeps_data_as_it_is": _STORED,
    "test_encryption.py::test_a_holder_is_told_by_its_path_in_any_format": _STORED,
    "test_encryption.py::test_a_raw_file_of_what_one_may_not_read": _STORED,
    "test_encryption.py::test_a_raw_file_that_is_copied": _STORED,
    "test_encryption.py::test_a_value_that_looks_like_the_path": _STORED,
    "test_encryption.py::test_an_attachment_is_decrypted_only": _STORED,
    "test_encryption.py::test_attachments_with_a_provider_of_their_own": _ELSEWHERE,
    "test_encryption.py::test_data_stays_readable_when_controls_are_not_marked": _STORED,
    "test_encryption.py::test_definitions_and_the_designer": _STORED,
    "test_encryption.py::test_marked_values_are_encrypted_at_rest": _STORED,
    "test_encryption.py::test_nothing_marked_is_found_on_disk": _STORED,
    "test_encrypted_search.py::test_a_form_whose_definition_is_damaged": _DAMAGE,
    "test_encrypted_search.py::test_the_command_and": "it is about a tree, as tests/cli and tests/pages are",
    "test_encryption_places.py::test_a_check_finds_a_missing_seal": _STORED,
    "test_encryption_places.py::test_a_move_to_a_database_and_back": "it has a service of each engine itself",
    "test_encryption_notes.py": "it is about sidecars as files",
    "test_export.py::test_what_is_damaged_is_left_out": _DAMAGE,
    "test_export.py::test_with_history_and_drafts_nothing_is_missing": _STORED,
    "test_export.py::test_stored_bytes_are_exported_as_they_are": _STORED,
    "test_export.py::test_what_does_not_decrypt_is_left_out_whole": _DAMAGE,
    "test_flat_views.py": _FLAT,
    "test_form_metadata.py::test_a_sidecar_edited_by_hand": _BY_HAND,
    "test_form_metadata.py::test_a_version_that_cannot_be_read": _DAMAGE,
    "test_form_metadata.py::test_publishing_changing_and_deleting_are_seen": _BY_HAND,
    "test_history.py::test_a_damaged": _DAMAGE,
    "test_history.py::test_a_damaged_revision": _DAMAGE,
    "test_encryption.py::test_nginx_is_not_sent": "nginx sends files of a tree",
    "test_languages.py::test_what_commands_and_errors_say": "it puts the results of a check there",
    "test_looking.py::test_a_check_runs_once": "it puts a file there: see tests/postgresql/test_http.py",
    "test_looking.py::test_one_finding": _BY_HAND,
    "test_looking.py::test_each_finding_keeps": _DAMAGE,
    "test_looking.py::test_results_that_would_be_too_many": _DAMAGE,
    "test_looking.py::test_what_only_a_deep_check": _DAMAGE,
    "test_looking.py::test_nothing_is_offered": _DAMAGE,
    "test_looking.py::test_findings_and_the_pages": _DAMAGE,
    "test_looking.py::test_a_list_that_is_older": _DAMAGE,
    "test_nginx.py": "nginx sends files of a tree",
    "test_form_metadata.py::test_a_damaged_definition": _DAMAGE,
    "test_dialects.py::test_a_form_from_its_publication": _STORED,
    "test_dialects.py::test_the_designer_publishes_from_one_dialect": _STORED,
    "test_permissions.py::test_a_definition_edited_by_hand": _BY_HAND,
    "test_permissions.py::test_permissions_are_found_without_help_of_the_sidecar": _DAMAGE,
    "test_permissions.py::test_permissions_hold_where_a_file_is_lost": _DAMAGE,
    "test_provider_contract.py::test_delete_keeps_creation_and_owner": _STORED,
    "test_provider_contract.py::test_tombstones_of_nothing_are_no_damage": _BY_HAND,
    "test_publish.py::test_a_publisher_that_dies_half_way": "it stops a worker at a call on files",
    "test_reencryption.py": "it looks for plain texts in files: tests/postgresql/test_nodes.py looks for them in rows",
    "test_remote_faults.py::test_the_provider_is_told_whose_request_is_served": _ELSEWHERE,
    "test_remote_faults.py::test_a_service_without_keys_passes_no_key_on": _ELSEWHERE,
    "test_remote_faults.py::test_the_body_is_there_and_the_record_here": _ELSEWHERE,
    "test_remote_faults.py::test_without_its_body_an_attachment_is_damage_and_not_absent": _ELSEWHERE,
    "test_remote_faults.py::test_older_bodies_are_not_taken_for_the_one_there_is": _ELSEWHERE,
    "test_remote_faults.py::test_older_bodies_are_found_in_the_history_of_the_other_service": _ELSEWHERE,
    "test_remote_faults.py::test_an_older_body_that_is_not_there_any_more_is_501": _ELSEWHERE,
    "test_remote_faults.py::test_attachments_of_a_draft_go_from_the_other_service_too": _ELSEWHERE,
    "test_remote_faults.py::test_only_a_proxy_discards_a_draft_without_naming_its_data": _ELSEWHERE,
    "test_reporting.py": _FLAT,
    "test_reverting.py::test_the_sidecar_says_what_was_restored": _STORED,
    "test_reverting.py::test_a_repetition_stores_no_attachment_again": _STORED,
    "test_reverting.py::test_a_damaged_revision_does_not_come_back": _DAMAGE,
    "test_reverting.py::test_attachments_with_a_directory_of_their_own": _ELSEWHERE,
    "test_reverting.py::test_what_comes_back_is_what_was_there": _STORED,
    "test_reverting.py::test_what_is_encrypted_stays_encrypted": _STORED,
    "test_starting.py::test_a_writer_that_waits_too_long": "it takes the lock of a tree",
    "test_provider_contract.py::test_a_damaged_version_is_an_error": _DAMAGE,
    "test_starting.py::test_damage_is_said": _DAMAGE,
    "test_starting.py::test_nothing_is_made_in_the_place_of_a_disk": "it moves a directory away",
    "test_purging.py::test_an_attachment_stays_that_only_an_encrypted": _STORED,
    "test_document_pages.py::test_documents_are_listed_while_their_index": "it removes the index of a tree",
    "test_starting.py::test_no_line_of_a_sidecar_becomes_a_header": _BY_HAND,
    "test_starting.py::test_a_healthy_service_says_so_and": "it names the data directory",
    "test_search.py::test_a_get_of_reindex_rebuilds_nothing": "it looks at the files of the index",
    "test_search.py::test_of_many_calls_to_reindex": "it takes the lock of the index of a tree",
    "test_search.py::test_what_a_killed_worker_has_not_told_the": _INDEX,
    "test_search.py::test_an_index_is_rebuilt_in_a_process_of": _INDEX,
    "test_search.py::test_a_definition_that_goes_and_comes_back": _INDEX,
    "test_search.py::test_text_is_searched_in_an_index_without": _INDEX,
    "test_documents.py::test_the_document_is_found_whatever": "it is about the index and files of a tree",
    "test_starting.py::test_the_first_lines_say": _LINES,
    "test_starting.py::test_they_name_all_trees": _LINES,
    "test_starting.py::test_a_service_whose_tree_another_machine": "it is about the lease of a tree by a machine",
    "test_transfers.py::test_an_upload_does_not_grow_the_worker": _STORED,
    "test_transfers.py::test_downloads_go_out_by_sendfile": "rows are no files",
    "test_history_elsewhere.py::test_controls_of_data_here": _STORED,
    "test_history_elsewhere.py::test_data_behind_is_indexed": _FLAT,
    "test_history_elsewhere.py::test_data_here_has_flat_views": _FLAT,
}
"""Tests that say nothing of a database, by the beginning of their name, and why: they are skipped."""


def address(server: Server, directory: Path) -> str:
    """The address of the schema that stands for a directory."""
    return server.uri(f"d_{hashlib.sha256(str(directory).encode()).hexdigest()[:16]}")


def prepare(server: Server, directory: Path) -> None:
    """Make the tables in the schema that stands for a directory."""
    prepared(address(server, directory))
