"""A second service behind the first, over real HTTP: what one suite shows of a service it then shows of the pair."""

from pathlib import Path

PREFIXES = {"svc": "svc.", "orbeon": "oxf.fr."}
BEHIND = "orbeon"
"""The dialect of the one behind."""


def settings(port: int, dialect: str, own: Path | None) -> str:
    """The settings of a service whose every form is with the one at a port; ``own`` is the file it would have."""
    provider = f"{PREFIXES[dialect]}persistence.files"
    lines = {"uri": f"http://127.0.0.1:{port}", "dialect": BEHIND}
    added = "".join(f'"{provider}.{name}" = "{value}"\n' for name, value in lines.items())
    text = own.read_text() if own is not None and own.exists() else ""
    keys = "" if "encryption_keys" in text else 'encryption_keys = "var/encryption-keys.json"\n'
    return added + keys + text


_OF_A_TREE = "it is about files, workers or the index of a tree, which the service in front has not"
_OWN_API = "it goes through the provider API of the service in front, which leads to its own trees"
_SETTINGS = "it changes the settings of a service, of which the service in front has a copy"
_SHOWN = "what a service behind would show too much of is 501: test_dialects.py"
_NOTE = "no answer tells of it: a provider keeps the contract's facts only"
_DAMAGED = "what is damaged in the service behind is 502 here"
_LACKS = "another service has no API for older revisions of definitions, nor for what is deleted or not named"
_PROCESS = "the service is another process"
_KEYS = "the keys are this service's"
_LOST = "what is lost or edited by hand behind, only the service behind can tell"

NOT_OF_A_PAIR = {
    "test_access_tokens.py::test_another_service": "it has providers of its own",
    "test_audit.py::test_pages_that_show_form_data": "the pages of the service in front show no data of another one",
    "test_encryption_places.py": _OWN_API,
    "test_encrypted_search.py::test_a_form_whose_definition_is_damaged": _DAMAGED,
    "test_encrypted_search.py::test_the_command_and": "it is about a tree, as tests/cli and tests/pages are",
    "test_encrypted_search.py::test_nothing_of_values_or_tokens": _OWN_API,
    "test_encrypted_search.py::test_a_token_that_a_client_sends": _OWN_API,
    "test_encrypted_search.py::test_values_are_found_through_new_keys": "another service re-encrypts nothing",
    "test_search.py::test_a_search_shows_what": _SHOWN,
    "test_callers.py": "who may call is decided in front, whatever is behind",
    "test_datasources.py": "several trees",
    "test_export.py::test_with_history_and_drafts": _LACKS,
    "test_export.py::test_history_and_dates": _LACKS,
    "test_export.py::test_what_is_damaged": "the damage is behind the other service",
    "test_export.py::test_entries_of_more_than": _PROCESS,
    "test_export.py::test_a_disk_that_stops": _PROCESS,
    "test_export.py::test_a_client_that_goes_away": _PROCESS,
    "test_export.py::test_a_document_that_changes": "the export of the other service is meant",
    "test_export.py::test_stored_bytes": _KEYS,
    "test_export.py::test_decrypted_only": _KEYS,
    "test_export.py::test_what_does_not_decrypt": _KEYS,
    "test_export.py::test_an_archive_of_the_real": "another service has its own times and owners",
    "test_flat_views.py": "flat views are made behind, and looked at in the tree",
    "test_history_elsewhere.py": "it has providers of its own",
    "test_history.py::test_what_is_too_large": "it lowers a bound of a service in its own process",
    "test_nginx.py": _OF_A_TREE,
    "test_definitions.py::test_an_index_that_was_built_by_other_paths": _OF_A_TREE,
    "test_definitions.py::test_a_stored_definition_with_a_mark": _OWN_API,
    "test_provider_contract.py": _OWN_API,
    "test_purging.py": "it has providers of its own",
    "test_reencryption.py": "what is stored behind is re-encrypted by nobody but the service behind",
    "test_remote_faults.py": "it has providers of its own",
    "test_reporting.py": _OF_A_TREE,
    "test_starting.py::test_a_healthy_service": _OF_A_TREE,
    "test_starting.py::test_a_writer_that_waits": _OF_A_TREE,
    "test_starting.py::test_damage_is_said": _OF_A_TREE,
    "test_starting.py::test_no_line_of_a_sidecar": _OF_A_TREE,
    "test_starting.py::test_no_header_moves": _OF_A_TREE,
    "test_starting.py::test_nothing_is_made": _OF_A_TREE,
    "test_attachments.py::test_pages_with_an_address": "the one behind has no pages",
    "test_restoring.py::test_a_form_comes_back": "what is stored behind is restored there",
    "test_transfers.py::test_large_xml": "the one behind has its own bound",
    "test_bounds.py::test_few_large_documents": "the one behind parses",
    "test_search.py::test_of_many_calls_to_reindex": _OF_A_TREE,
    "test_search.py::test_what_a_killed_worker": _OF_A_TREE,
    "test_search.py::test_an_index_is_rebuilt_in_a_process": _OF_A_TREE,
    "test_publish.py::test_a_publisher_that_dies": _OF_A_TREE,
    "test_publish.py::test_who_may_not_read_it_may_not_publish_it": _OWN_API,
    "test_starting.py::test_the_first_lines_say": "the lines name the trees of the service in front",
    "test_starting.py::test_they_name_all_trees": "the lines name the trees of the service in front",
    "test_starting.py::test_hangup_reads_the_settings_again": _SETTINGS,
    "test_starting.py::test_two_services_serve_one_tree": _OF_A_TREE,
    "test_starting.py::test_a_service_whose_tree_another_machine": _OF_A_TREE,
    "test_transfers.py::test_downloads_go_out_by_sendfile": "what comes from elsewhere is no file here",
    "test_encryption.py::test_marked_values_are_encrypted_at_rest": "it has providers of its own",
    "test_encryption.py::test_a_holder_is_told_by_its_path": "it has providers of its own",
    "test_encryption.py::test_what_the_real_system_has_encrypted": _OWN_API,
    "test_encryption.py::test_values_are_plain_as_json": _OWN_API,
    "test_encryption.py::test_nothing_marked_is_found_on_disk": "it has providers of its own",
    "test_encryption.py::test_nginx_is_not_sent": _OF_A_TREE,
    "test_encryption.py::test_definitions_and_the_designer": "the designer's application is called otherwise behind",
}
"""Tests that say nothing of a pair, by the beginning of their name, and why."""

DIFFERENT = {
    "test_documents.py::test_a_file_replaced_by_hand": f"its tag differs, its date is believed: {_LOST}",
    "test_definitions.py::test_deleting_a_definition_leaves_the_rest": "a deleted form's permissions are not told",
    "test_encryption.py::test_a_changed_file": _DAMAGED,
    "test_encryption.py::test_an_attachment_is_decrypted_only": f"the sidecar has no flag: {_NOTE}",
    "test_encryption.py::test_nothing_is_stored_plain": "without a definition nobody is let in at all",
    "test_encryption.py::test_stored_and_decrypted_bytes": f"times are not judged: {_NOTE}",
    "test_encryption.py::test_the_client_s_hash_of_data": "it is not handed on plain, and has no place encrypted",
    "test_form_metadata.py::test_a_sidecar_edited_by_hand": _LOST,
    "test_form_metadata.py::test_a_version_that_cannot_be_read": _DAMAGED,
    "test_form_metadata.py::test_a_damaged_definition": _DAMAGED,
    "test_permissions.py::test_a_definition_edited_by_hand": _LOST,
    "test_permissions.py::test_deleting_a_form_opens_its_data_to_nobody": "not even to those who might read it before",
    "test_permissions.py::test_permissions_hold_where_a_file_is_lost": _LOST,
    "test_switches.py::test_what_was_begun_with_a_version_that_is_deleted": "its permissions are not told",
    "test_publish.py::test_publishing_again_changes_nothing": f"a content is stored again: {_NOTE}",
    "test_reverting.py::test_a_repetition_stores_no_attachment_again": f"a content is stored again: {_NOTE}",
    "test_reverting.py::test_the_sidecar_says_what_was_restored": _NOTE,
    "test_reverting.py::test_the_version_of_a_document_stays": "when a deleted document was created is not told",
    "test_search.py::test_t11_permissions[svc]": "drafts of whoever sees their own documents only are not asked for",
    "test_search.py::test_a_definition_that_goes": "without a definition nobody is let in at all",
}
"""What a pair does otherwise on purpose, and why: the test must fail."""


def reason(names: dict[str, str], nodeid: str) -> str | None:
    """The reason that a table has for a test, if it has one."""
    file, bracket, case = nodeid.partition("[")
    name = file.rpartition("/")[2] + bracket + case
    return next((reason for begin, reason in names.items() if name.startswith(begin)), None)
