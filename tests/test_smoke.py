from support import run_patchkit, snapshot


def test_apply_and_revert_through_the_command(tree):
    folder = tree("0.5.9")
    before = snapshot(folder)
    assert run_patchkit("apply", "debug-logging", "--target", folder).returncode == 0
    assert snapshot(folder) != before
    assert run_patchkit("revert", "--target", folder).returncode == 0
    assert snapshot(folder) == before
