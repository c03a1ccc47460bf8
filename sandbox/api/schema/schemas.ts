import { admissionFields } from './admission-fields.ts';
import { appsFields } from './apps-fields.ts';
import { coreFields } from './core-fields.ts';
import { extensionFields } from './extension-fields.ts';
import { metaFields } from './meta-fields.ts';
import { storageFields } from './storage-fields.ts';
import { compileStructs, type Struct } from './struct.ts';

const structs = compileStructs(
  metaFields,
  coreFields,
  storageFields,
  extensionFields,
  appsFields,
  admissionFields,
);

/** The compiled struct of that name.
 * @throws Error for a name that no field table has: a mistake in a resource row */
export function schemaOf(name: string): Struct {
  const struct = structs.get(name);
  if (struct === undefined) throw new Error(`no field table describes ${name}`);
  return struct;
}
