"""What acts outside: Kafka, object stores, the disk, HTTP, the C library. Each brings in one library."""
