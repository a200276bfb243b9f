// lockstep._lockstep: ask(request), from JSON to JSON, both as text, with the interpreter released.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <exception>
#include <string>
#include <string_view>

#include "cli/ask.h"

namespace {

PyObject* ask(PyObject* /*module*/, PyObject* request) {
  Py_ssize_t size = 0;
  PyObject* const bytes = PyUnicode_AsUTF8String(request);
  char* text = nullptr;
  if (bytes == nullptr || PyBytes_AsStringAndSize(bytes, &text, &size) != 0) return nullptr;
  std::string reply, bug;
  Py_BEGIN_ALLOW_THREADS;
  try {
    reply = lockstep::cli::ask_text(std::string_view(text, static_cast<std::size_t>(size)));
  } catch (const std::exception& error) {
    bug = error.what();
  }
  Py_END_ALLOW_THREADS;
  Py_DECREF(bytes);
  if (reply.empty()) return PyErr_SetString(PyExc_RuntimeError, bug.c_str()), nullptr;
  return PyUnicode_FromStringAndSize(reply.data(), static_cast<Py_ssize_t>(reply.size()));
}

PyMethodDef methods[] = {{"ask", ask, METH_O, "ask(request: str) -> str"},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_lockstep", nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__lockstep() { return PyModule_Create(&module); }
