"""From text to values: what an answer says, in linear time, knowing neither rows nor rewards."""
