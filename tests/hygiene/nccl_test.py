"""cmake/LockstepNccl.cmake lets through the header of the NCCL that torch's wheel pins, and no other."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
METADATA = "Requires-Dist: nvidia-nccl-cu13==2.29.7; platform_system == \"Linux\"\nRequires-Dist: jinja2\n"


def header(version):
    return "".join(f"#define NCCL_{part} {number}\n" for part, number in zip(("MAJOR", "MINOR", "PATCH"), version.split(".")))


class NcclHeader(unittest.TestCase):
    def configure(self, version, metadata=METADATA, told=""):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "nccl.h").write_text(header(version))
            if metadata is not None:
                (place / "METADATA").write_text(metadata)
            script = place / "check.cmake"
            script.write_text(f'set(LOCKSTEP_NCCL_VERSION "{told}" CACHE STRING "")\n'
                              f'include("{ROOT}/cmake/LockstepNccl.cmake")\n'
                              f'lockstep_check_nccl("{place}/nccl.h" "{place}/METADATA")\n')
            return subprocess.run(["cmake", "-P", str(script)], capture_output=True, text=True, check=False)

    def test_only_the_pinned_version_passes(self):
        self.assertEqual(self.configure("2.29.7").returncode, 0)
        for other in ("2.28.9", "2.29.6", "2.29.70", "2.30.7", "3.29.7"):
            refused = self.configure(other)
            self.assertNotEqual(refused.returncode, 0, other)
            told = " ".join(refused.stderr.split())
            self.assertIn(f"is of NCCL {other}, and this torch was built with NCCL 2.29.7", told)

    def test_without_a_wheel_somebody_must_say(self):
        self.assertIn("LOCKSTEP_NCCL_VERSION", self.configure("2.29.7", metadata=None).stderr)
        self.assertEqual(self.configure("2.29.7", metadata=None, told="2.29.7").returncode, 0)
        self.assertNotEqual(self.configure("2.29.7", metadata=None, told="2.29.6").returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
