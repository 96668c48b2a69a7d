-- What fields hold that the contract does not know stays on the sealed tapes: it may be anything, people's names too.
alter table raw.deal_version drop column payload;

alter table raw.borrower_version drop column payload;

alter table raw.document_version drop column payload;
