import {z} from 'zod'
import {dealStream} from './deal.ts'
import {idField, sourceText} from './fields.ts'
import {instantOrDate} from './instant-or-date.ts'
import {childIdOf, type Stream} from './stream.ts'

const kept = z.object({
  id: idField,
  deal_id: idField,
  category: sourceText.nullish(),
  created_at: instantOrDate.nullish(),
})

const dropped = ['name', 'file_name', 'media_type', 'bytes', 'sha256']

/** The stream of documents attached to deals; their names, which often name people, are not kept. */
export const documentStream: Stream = {
  name: 'document',
  plural: 'documents',
  parent: {stream: dealStream, column: 'deal_id'},
  idColumn: 'attachment_id',
  idField: 'id',
  listPath: '/deals/{id}/documents',
  columns: [
    {name: 'deal_id', type: 'VARCHAR'},
    {name: 'document_id', type: 'VARCHAR'},
    {name: 'category', type: 'VARCHAR'},
    {name: 'created_at', type: 'TIMESTAMP', precisionColumn: 'created_at_precision'},
    {name: 'created_at_precision', type: 'VARCHAR'},
  ],
  wireFields: [...Object.keys(kept.shape), ...dropped],
  privacy: {hashed: [], dropped},
  vocabularies: [{column: 'category', known: null}],
  schema: kept.transform(({id, deal_id, category, created_at}) => ({
    attachment_id: childIdOf(deal_id, id),
    deal_id,
    document_id: id,
    category: category ?? null,
    created_at: created_at?.micros ?? null,
    created_at_precision: created_at?.precision ?? null,
  })),
}
