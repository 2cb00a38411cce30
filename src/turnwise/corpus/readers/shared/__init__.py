"""What readers share: files, fields, times, speakers, annotations, and the order of messages."""
