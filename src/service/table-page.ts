import type {z} from 'zod'
import type {ListBody, PageQuery} from '../contract/page.ts'
import {readListPage} from './cursor.ts'
import type {ServiceDatabase} from './database.ts'

/** Reads one page of the rows of a table that belong to one parent, or of all its rows. */
export function readTablePage<T extends {id: string; created_at: string}>(
  query: PageQuery,
  table: {name: string; row: z.ZodType<T>; parent?: {column: string; id: string}},
  database: ServiceDatabase,
): ListBody<T> {
  const {name, row, parent} = table
  const sql = `select * from ${name} where ${parent?.column ?? "''"} = ? and (created_at, id) > (?, ?)
    order by created_at, id limit ?`
  return readListPage(
    query,
    {
      name,
      filter: parent?.id ?? null,
      fetch: (after, limit) => database.all(row, sql, parent?.id ?? '', after.createdAt, after.id, limit),
    },
    database.secret,
  )
}
