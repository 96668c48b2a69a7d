import {readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {renderConfigurationPage, renderEnvExample, renderErrorsPage} from './config-docs.ts'
import {renderServicePage} from './service-docs.ts'

const root = join(import.meta.dirname, '..')
writeFileSync(join(root, 'docs/configuration.md'), renderConfigurationPage())
writeFileSync(join(root, 'docs/errors.md'), renderErrorsPage())
writeFileSync(join(root, '.env.example'), renderEnvExample())
const servicePage = join(root, 'docs/service.md')
writeFileSync(servicePage, renderServicePage(readFileSync(servicePage, 'utf8')))
