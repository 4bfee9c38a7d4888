"""The bytes of MySQL's protocol: packets, the handshake, fields and rows of answers.

Law: whatever bytes a peer sends, memory and time that it takes are bounded."""
