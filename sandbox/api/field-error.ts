import type { Cause } from './api-error.ts';
import type { Json } from './json-value.ts';

/** The field is missing. */
export function required(field: string, detail = ''): Cause {
  return {
    reason: 'FieldValueRequired',
    message: `Required value${detail === '' ? '' : `: ${detail}`}`,
    field,
  };
}

/** The field has an invalid value. */
export function invalidValue(field: string, value: Json | undefined, detail: string): Cause {
  return {
    reason: 'FieldValueInvalid',
    message: `Invalid value: ${JSON.stringify(value ?? null)}: ${detail}`,
    field,
  };
}

/** The field's value is not one of the supported ones. */
export function notSupported(
  field: string,
  value: Json | undefined,
  supported: readonly string[],
): Cause {
  const values = [...supported].sort().map((each) => JSON.stringify(each));
  const given = JSON.stringify(value ?? null);
  return {
    reason: 'FieldValueNotSupported',
    message: `Unsupported value: ${given}: supported values: ${values.join(', ')}`,
    field,
  };
}

/** The field may not be set or changed here. */
export function forbiddenValue(field: string, detail: string): Cause {
  return { reason: 'FieldValueForbidden', message: `Forbidden: ${detail}`, field };
}

/** The field's value is too long. */
export function tooLong(field: string, maxBytes: number): Cause {
  return {
    reason: 'FieldValueTooLong',
    message: `Too long: may not be more than ${maxBytes} bytes`,
    field,
  };
}

/** The field can't be changed after creation. */
export function immutable(field: string, value: Json | undefined): Cause {
  return invalidValue(field, value, 'field is immutable');
}
