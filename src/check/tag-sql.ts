import type {CheckTag} from '../types.ts'
import {quoteLiteral, quoteName} from '../warehouse/database.ts'

/**
 * The SELECT of the rows that break a header check, led by the columns of the model's grain; on one line.
 *
 * @returns null when the arguments do not fit the rule
 */
export function buildTagSql(tag: CheckTag): string | null {
  const [column = '', ...rest] = tag.args
  const name = quoteName(column)
  const table = tag.model
  const columns = tag.args.map(quoteName)
  switch (tag.rule) {
    case 'unique':
      if (column === '') return null
      return `select ${columns.join(', ')}, count(*) as copies from ${table} group by all having count(*) > 1`
    case 'not_null':
      if (column === '') return null
      return selectRows(tag, columns, columns.map((each) => `${each} is null`).join(' or '))
    case 'accepted':
      if (rest.length === 0) return null
      return selectRows(tag, [name], `cast(${name} as varchar) not in (${rest.map(quoteLiteral).join(', ')})`)
    case 'references': {
      const parts = rest[0]?.split('.') ?? []
      if (rest.length !== 1 || parts.length !== 3) return null
      const [schema = '', other = '', key = ''] = parts.map(quoteName)
      return selectRows(
        tag,
        [name],
        `${name} is not null and ${name} not in (select ${key} from ${schema}.${other} where ${key} is not null)`,
      )
    }
    case 'between': {
      const [low, high] = rest
      if (rest.length !== 2 || low === undefined || high === undefined) return null
      return selectRows(tag, [name], `${name} not between ${quoteLiteral(low)} and ${quoteLiteral(high)}`)
    }
    default:
      return null
  }
}

function selectRows(tag: CheckTag, columns: readonly string[], isWrong: string): string {
  const shown = new Set([...tag.grain.map(quoteName), ...columns])
  return `select ${[...shown].join(', ')} from ${tag.model} where ${isWrong}`
}
