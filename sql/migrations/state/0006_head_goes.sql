-- The chain of a tape's last line is that of its last unit, in tape_unit.
alter table tape drop column head;
