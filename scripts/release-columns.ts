import type {BuildPlan} from '../src/core/types.ts'

const KINDS: Record<string, string> = {
  VARCHAR: 'text',
  DATE: 'text',
  TIMESTAMP: 'text',
  BIGINT: 'number',
  DOUBLE: 'number',
  BOOLEAN: 'truth',
}

/** `src/build/release-columns.ts`, from the compiled types of published tables and the `not_null` checks of their headers. */
export function renderReleaseColumns({models, columns}: BuildPlan): string {
  const tables = models
    .filter(({isPublished}) => isPublished)
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({name, checks}) => {
      const filled = new Set(checks.filter(({rule}) => rule === 'not_null').flatMap(({args}) => args))
      const kinds = (columns.get(name) ?? []).map((column) => {
        const kind = column.type.startsWith('DECIMAL') ? 'decimal' : KINDS[column.type]
        if (kind === undefined)
          throw new Error(`${name}.${column.name} is ${column.type}: pages cannot read it`)
        return `${column.name}: '${kind}${filled.has(column.name) ? '' : '?'}'`
      })
      return `  '${name}': {${kinds.join(', ')}},`
    })
  return `// Written by \`npm run docs\` from the models: the columns of the tables of a release, \`?\` where one may be null.

export const COLUMNS = {
${tables.join('\n')}
} as const
`
}
