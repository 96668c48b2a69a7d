import type {Model} from '../types.ts'
import type {TableColumn} from '../warehouse/table-columns.ts'
import {createModelError} from './model-error.ts'

/** Types that every tool reading a release understands. */
const PLAIN_TYPES = /^(VARCHAR|BIGINT|DECIMAL\(\d+,\d+\)|DOUBLE|DATE|TIMESTAMP|BOOLEAN)$/

/**
 * Holds the columns that a model came to against its header: every column is described, every description has its
 * column, and published types are plain.
 *
 * @throws CheckError `MODEL_COLUMNS` or `MODEL_TYPE`, with file and line
 */
export function requireDescribedColumns(model: Model, columns: readonly TableColumn[]): void {
  const headerEnd = model.columns.at(-1)?.line ?? 1
  for (const {name, type} of columns) {
    const described = model.columns.find((column) => column.name === name)
    const place = {file: model.file, line: described?.line ?? headerEnd}
    if (!described) {
      throw createModelError(
        'MODEL_COLUMNS',
        place,
        `Column '${name}' of model '${model.name}' is not described: expected \`-- ${name}: meaning\``,
      )
    }
    if (model.isPublished && !PLAIN_TYPES.test(type)) {
      throw createModelError(
        'MODEL_TYPE',
        place,
        `Column '${name}' of model '${model.name}' is ${type}: expected an explicit cast to VARCHAR, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP or BOOLEAN`,
      )
    }
  }
  const stray = model.columns.find(({name}) => !columns.some((column) => column.name === name))
  if (stray) {
    throw createModelError(
      'MODEL_COLUMNS',
      {file: model.file, line: stray.line},
      `Header describes column '${stray.name}', which model '${model.name}' does not have: expected ${columns.map(({name}) => name).join(', ')}`,
    )
  }
}
