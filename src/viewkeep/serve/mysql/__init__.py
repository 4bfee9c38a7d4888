"""The MySQL protocol, so that MySQL's clients read and write as they are."""
