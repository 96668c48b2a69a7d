import type {z} from 'zod'
import type {ColumnValue} from '../types.ts'
import type {MappedField} from './mapped-field.ts'

/** One typed column of a stream's tables. */
export interface Column {
  name: string
  type: 'VARCHAR' | 'DECIMAL(18,2)' | 'TIMESTAMP'
  /** Stored as sent, compared in lower case and without blanks around it. */
  isCanonical?: true
  /** A blank text says as much as none. */
  mayBeBlank?: true
  /** A source may leave the field out: the tables have a boolean `<name>_present` beside it. */
  mayBeAbsent?: true
  /**
   * Names the column that holds `instant` or `date`: what a timestamp was given as.
   * A date never replaces an instant of the same UTC date.
   */
  precisionColumn?: string
}

/** A column of few values, and those that surprise nobody. */
export interface Vocabulary {
  column: string
  /** The values the contract lists; null where every value stored before is known. */
  known: readonly string[] | null
}

/** What of a record is kept where it may hold personal data: of all its other fields only their names. */
export interface Privacy {
  /** Wire fields that are kept as keyed hash. */
  hashed: readonly string[]
  /** Wire fields that the contract knows and nothing keeps. */
  dropped: readonly string[]
}

/** A kind of record that is synced; source, load and warehouse are written over this, never over one kind. */
export interface Stream {
  /** Names the tables: `raw.<name>_version`, `raw.<name>_head`. */
  name: string
  /** Its records in messages and in `LOANTAPE_STREAMS`. */
  plural: string
  /**
   * The stream whose records each have a list of these, asked for one by one. The child's id is {@link childIdOf} both;
   * `column` holds the parent's id and is also the wire field that may name it.
   */
  parent?: {stream: Stream; column: string}
  idColumn: string
  /** The wire field that holds the id. */
  idField: string
  /** Path of the list endpoint, relative to the base URL; `{id}` stands for the parent's id. */
  listPath: string
  /** Typed columns without the id, in table order. */
  columns: readonly Column[]
  /** The wire fields the contract knows; all others are drift, and only their names are kept. */
  wireFields: readonly string[]
  /** Of these the values are kept, too, in `raw.<name>_extra`; streams of people have none. */
  mapped?: readonly MappedField[]
  /** For records of or about people. */
  privacy?: Privacy
  /** The column whose sum is the stream's control total, where it has one. */
  amountColumn?: string
  /** The columns whose new values are reported as drift. */
  vocabularies: readonly Vocabulary[]
  /**
   * A guard watches records that enter or leave these values of this column, those with an `ended` value apart; the details
   * of records in them, and what belongs to them, are fetched first.
   */
  settled?: {column: string; values: readonly string[]; ended: readonly string[]}
  /**
   * The column that may be left out of which each answer of a record's own page is kept, in `raw.<name>_confirmation` where it
   * changes nothing.
   */
  confirmed?: string
  /** Parses a wire record into its column values, the id among them; an absent field stays undefined. */
  schema: z.ZodType<Record<string, ColumnValue | undefined>>
}

/** The id of a record that is told apart only within its parent. */
export function childIdOf(parentId: string, id: string): string {
  return `${parentId}/${id}`
}

/** The columns a source may leave out, in table order. */
export function optionalColumnsOf(stream: Stream): Column[] {
  return stream.columns.filter((column) => column.mayBeAbsent)
}
